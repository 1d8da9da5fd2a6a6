"""The typed recipe: which stages, in what order, with what. Reads and checks a YAML file, resolves what each stage
takes from which, names each piece of work by a hash, reuses what is finished, and runs the rest."""
