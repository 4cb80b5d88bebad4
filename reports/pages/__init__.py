"""The pages of the site: what each template receives, and the writing of the files.

`contents.py` chooses the best version of each study, `site.py` renders all pages into a folder, and each
other module prepares one kind of page.
"""
