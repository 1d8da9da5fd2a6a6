"""Feed-forward layers, which work on each token by itself: dense, or a mixture of experts."""
