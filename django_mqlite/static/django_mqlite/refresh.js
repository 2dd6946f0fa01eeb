/* Refreshes a part of the page every few seconds while the page is visible. */
"use strict";

{
    const INTERVAL = 3000;
    const part = document.querySelector("[data-mqlite-refresh]");
    const status = document.querySelector("[data-mqlite-status]");
    const toggle = document.querySelector("[data-mqlite-toggle]");
    let enabled = true;
    let timer = null;

    const showStatus = (text) => {
        // Only changes: a screen reader would read the same text again and again.
        if (status.textContent !== text) {
            status.textContent = text;
        }
    };

    // What a link or a button does identifies it in the old and in the new part.
    const target = (element) => element.getAttribute("href") || element.value || element.id;

    const replace = (html) => {
        const focused = part.contains(document.activeElement) ? target(document.activeElement) : "";
        const scrolled = [...part.querySelectorAll(".mqlite-scroll")].map((box) => box.scrollLeft);
        part.innerHTML = html;
        part.querySelectorAll(".mqlite-scroll").forEach((box, index) => {
            box.scrollLeft = scrolled[index] || 0;
        });
        const same = [...part.querySelectorAll("a, button, [id]")].find(
            (element) => focused && target(element) === focused
        );
        same?.focus({preventScroll: true});
    };

    const refresh = async () => {
        try {
            const response = await fetch(part.dataset.mqliteRefresh, {
                credentials: "same-origin",
                redirect: "manual",
            });
            if (!response.ok) {
                throw new Error(response.status);
            }
            const html = await response.text();
            if (enabled) {
                replace(html);
                showStatus("");
            }
        } catch {
            showStatus(status.dataset.mqliteStatus);
        }
        schedule();
    };

    const schedule = () => {
        clearTimeout(timer);
        if (enabled && document.visibilityState === "visible") {
            timer = setTimeout(refresh, INTERVAL);
        }
    };

    toggle.hidden = false;
    toggle.addEventListener("click", () => {
        enabled = !enabled;
        toggle.textContent = enabled ? toggle.dataset.stop : toggle.dataset.start;
        schedule();
    });
    document.addEventListener("visibilitychange", () => {
        clearTimeout(timer);
        if (enabled && document.visibilityState === "visible") {
            refresh();
        }
    });
    schedule();
}
