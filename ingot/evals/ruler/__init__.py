"""RULER: thirteen tasks on texts of any length (Hsieh et al. 2024, arXiv 2404.06654)."""
