"""The Berkeley Function-Calling Leaderboard, version 4 (Patil et al. 2025): calls compared as syntax trees, or run."""
