"""shade beside other people's formats, in one run: README.md of benches/ says how."""
