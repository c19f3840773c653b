"""The producer of the demo: sends lines at a pace and writes down what was acknowledged."""
