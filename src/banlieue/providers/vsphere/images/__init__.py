"""How images come to a vCenter: file formats, transfers to its hosts, published templates."""
