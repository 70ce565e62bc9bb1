"""The pages of the sandbox: a dashboard for the one who develops, and the places where a buyer pays.

The dashboard is a client of the control API. The buyer's pages are forms that need no script.
"""
