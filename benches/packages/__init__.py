"""What packages do for a store whose operations are the limit."""
