"""shade under DLIO, the engine of MLPerf Storage, beside DLIO's own data loaders."""
