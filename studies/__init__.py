"""Studies: questions answered by experiments that anybody can repeat."""
