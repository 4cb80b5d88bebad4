"""The leaderboard: methods scored and ranked over problem instances."""
