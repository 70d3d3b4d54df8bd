"""The service: runs as a web page, as REST endpoints, and as a WebSocket for streams.

server                the process: uvicorn, stopped in order
app                   the ASGI application: endpoints, their failures, and the checks around them
guards, settings      host, token, origin and size of requests; the limits and who has access
service               checks requests, submits them to the batcher, builds the answers
schemas               what requests carry and answers have; examples.json has an answer of each endpoint
batcher               two threads, one for streams alone; jobs that wait are computed together
answers, lattice_view what is computed for requests, as JSON objects; the lattice of the page
run_info              what a run can do, with examples, and its first use
stream_socket         one stream per connection, events in and out
streams               streams that advance together, and the history of each
monitoring            metrics, and a log that never holds the service up
page/                 the files of the page
"""
