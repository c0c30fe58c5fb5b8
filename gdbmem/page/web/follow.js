// Updates a served page: at once if the user has not touched it, else on request.

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
      newer.textContent = "gdbmem serve has ended; this is its last page.";
      newer.hidden = false;
    }
  };
  setInterval(look, 1000);
}
