"""The pages of the site: what each template receives, and the writing of the files.

`contents.py` chooses the best version of each study: from local runs, which were computed on this machine, or
from a published set. `site.py` renders all pages into a folder, and each other module prepares one kind of
page. The context of a page consists of the values that the page's template receives, by name.
"""
