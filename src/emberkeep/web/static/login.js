// Sends the code of a login link at once. Without scripts, the page's button does it.

document.getElementById("code").requestSubmit();
