/* Fetches a part of the page afresh every few seconds, while somebody can see it. */
"use strict";

{
    const EVERY = 3000;
    const part = document.querySelector("[data-mqlite-refresh]");
    const status = document.querySelector("[data-mqlite-status]");
    const toggle = document.querySelector("[data-mqlite-toggle]");
    let wanted = true;
    let waiting = null;

    const say = (text) => {
        // Only what is new: a screen reader would read the same again and again.
        if (status.textContent !== text) {
            status.textContent = text;
        }
    };

    const replace = (html) => {
        const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
        const scrolled = [...part.querySelectorAll(".mqlite-scroll")].map((box) => box.scrollLeft);
        part.innerHTML = html;
        part.querySelectorAll(".mqlite-scroll").forEach((box, place) => {
            box.scrollLeft = scrolled[place] || 0;
        });
        if (focused && document.getElementById(focused)) {
            document.getElementById(focused).focus({preventScroll: true});
        }
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
            if (wanted) {
                replace(html);
                say("");
            }
        } catch {
            say(status.dataset.mqliteStatus);
        }
        plan();
    };

    const plan = () => {
        clearTimeout(waiting);
        if (wanted && document.visibilityState === "visible") {
            waiting = setTimeout(refresh, EVERY);
        }
    };

    toggle.hidden = false;
    toggle.addEventListener("click", () => {
        wanted = !wanted;
        toggle.textContent = wanted ? toggle.dataset.stop : toggle.dataset.start;
        plan();
    });
    document.addEventListener("visibilitychange", () => {
        clearTimeout(waiting);
        if (wanted && document.visibilityState === "visible") {
            refresh();
        }
    });
    plan();
}
