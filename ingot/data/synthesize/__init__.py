"""Documents made by a model or a program from other documents, each with its lineage."""
