"""Figures in SVG, in a light and a dark variant."""
