"""The sandbox's page: what its state looks like in a browser, and forms that change it.

    site.py        the routes, what a browser is told and refused, and the views, each with its template
    forms.py       what the forms do
    content.py     what the views show, read from the database a page at a time
    drawing.py     pages of PDFs as pictures, and mail's HTML without what would load or lead anywhere
    reference.py   the operations of an OpenAPI document as /docs shows them, each with an example
    templates/     one for each view;  static/: a style sheet, a script, and htmx and Simple.css as npm has them

It works without the script, which only keeps it up to date and adds keys.
"""
