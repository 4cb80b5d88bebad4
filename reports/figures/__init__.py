"""Figures in SVG, which follow the page's theme."""
