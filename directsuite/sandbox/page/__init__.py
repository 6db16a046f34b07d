"""The sandbox's web page: shows the state, and has forms that change it.

    site.py        the routes, the access checks, the forms and the events
    views.py       the views and their database queries
    drawing.py     pages of PDFs as pictures, and HTML of messages without active content
    templates/     one per view;  static/: a style sheet, a script, and htmx and Simple.css from npm, unmodified

Without JavaScript, only updates after changes and keyboard shortcuts are missing.
"""
