"""The service: runs as a web page, as REST endpoints, and as a WebSocket for streams."""
