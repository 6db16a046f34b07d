"""`directsuite doctor`: what keeps this machine from using the services, and what to do about it.

    this machine   versions, extras, settings, trusted certificates, proxy
    each service   URL ──► name ──► connection ──► TLS ──► answer ──► clock ──► token, login or mailbox

Each check ends within its time; what stands behind a failed one isn't checked. The services go side by side. Nothing is
saved, sent or changed anywhere.
"""
