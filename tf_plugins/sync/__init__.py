"""When ranks synchronize: what `sync=` takes."""
