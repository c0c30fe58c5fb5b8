// Data as the page holds it: base64 of gzip of JSON.

/**
 * @param {string} text
 * @returns {Promise<any>}
 */
export async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}
