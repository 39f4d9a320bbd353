"""Rows in; a page, figures or terminal tables out. No model is ever loaded here."""
