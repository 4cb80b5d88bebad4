"""Figures as SVG files, which follow the light or dark theme of the page.

`drawing.py` and `palette.py` have the components and colours that all figures share; `all_figures.py` draws
the figures of a report. The figures of a study have a panel for each optimizer. In a panel, the dashes of a
line show its basis (an orthogonal change of coordinates of the parameters); the identity basis, which leaves
the coordinates as they are, is solid.
"""
