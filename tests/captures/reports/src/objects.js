const kept = []; for (let n = 0; n < 3000; n++) kept.push({ name: 'n' + n, list: new Array(n % 50).fill(n) }); console.log(kept.length);
