"""What is made of documents, a file each: its options, its prompts, and the checks that an answer must pass."""
