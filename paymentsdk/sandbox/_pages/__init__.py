"""The pages of the sandbox: a dashboard for developers, and the pages where buyers pay.

The dashboard is a client of the control API. The buyers' pages are forms that need no script.
"""
