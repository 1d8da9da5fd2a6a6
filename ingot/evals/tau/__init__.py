"""Customer service with tools, a policy and a simulated user, after tau-bench (Yao et al. 2024, arXiv 2406.12045)."""
