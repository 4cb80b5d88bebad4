"""Figures as SVG files, which follow the light or dark theme of the page.

`drawing.py` and `palette.py` have the components and colours that all figures share; `all_figures.py` draws
the figures of a report.
"""
