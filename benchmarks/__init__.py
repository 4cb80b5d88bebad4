"""What is run: `studies/`, one question a file."""
