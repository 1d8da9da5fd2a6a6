"""What happens to each token by itself: the feed-forward, dense or a mixture of experts."""
