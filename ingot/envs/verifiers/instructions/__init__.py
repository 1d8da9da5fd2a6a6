"""Verifiable instructions of IFEval and IFBench, one file a family, each found by its published id."""
