"""From tables to pages: statistics, figures, leaderboard and the static site."""
