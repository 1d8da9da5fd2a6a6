"""The task kinds, one a file: each generates questions, works out a model answer, makes a wrong one, and scores."""
