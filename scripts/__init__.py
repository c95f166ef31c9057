"""Commands: training examples, benches and the trepak command line."""
