"""What frameworks need to train from a Loader, a module for each. They import the framework, `shade_load` does not."""
