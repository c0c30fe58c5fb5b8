// Has a page that is served show what is newer: at once while nobody has touched it, else when that is asked for.

export function follow() {
  const { follow: address, stamp } = document.body.dataset;
  const newer = document.getElementById("newer");
  if (!address || !newer) return;
  let isTouched = false;
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => (isTouched = true), { once: true });
  const look = async () => {
    try {
      const answer = await fetch(address, { cache: "no-store" });
      const now = (await answer.text()).trim();
      if (!answer.ok || now === stamp) return;
      if (!isTouched) location.reload();
      else if (newer.hidden) {
        const button = document.createElement("button");
        button.textContent = "there is more now: show it";
        button.addEventListener("click", () => location.reload());
        newer.replaceChildren(button);
        newer.hidden = false;
      }
    } catch {
      newer.textContent = "gdbmem serve has ended; this is what there was.";
      newer.hidden = false;
    }
  };
  setInterval(look, 1000);
}
