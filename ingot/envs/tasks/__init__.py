"""The task kinds, one a file: each generates questions in many wordings, works out a model answer, and scores."""
