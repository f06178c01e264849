"""Sends notifications to a web server of the operators."""
