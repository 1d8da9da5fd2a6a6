"""Tests of upsampling and mixtures."""
