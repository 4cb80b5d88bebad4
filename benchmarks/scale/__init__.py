"""Plans and tables of any size, and what planning and reporting them takes."""
