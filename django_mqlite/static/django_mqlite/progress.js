/* Asks for the next batches by itself; without this script a button does. */
"use strict";

document.querySelectorAll("form[data-mqlite-continue]").forEach((form) => form.requestSubmit());
