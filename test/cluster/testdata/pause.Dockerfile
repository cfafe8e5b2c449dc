FROM scratch
COPY guest /guest
ENTRYPOINT ["/guest", "pause"]
