"""Settings of Sphinx for the documentation site, which `make docs` renders from the Markdown of the project.

The source folder is the project's root, so that links between README, CONTRIBUTING and `docs` are the same on
the site as in a checkout.
"""

import curvebench

project = "curvebench"
author = "The curvebench authors"
project_copyright = "the curvebench authors, BSD-3-Clause"
release = curvebench.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "results/published/**README.md"]
exclude_patterns = ["docs/site"]
myst_heading_anchors = 4
default_role = "code"  # docstrings write code in single backticks, as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
maximum_signature_line_length = 90
html_theme = "furo"
html_title = f"curvebench {release}"
