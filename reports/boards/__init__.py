"""Boards: methods scored and ranked over problem instances."""
