"""The service: runs behind an address, as a page, as REST and as a socket for streams."""
