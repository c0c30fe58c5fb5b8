// Recipes as tasks.

/** Whether the text of a YAML file is that of a recipe. */
export function isRecipe(text: string): boolean {
  return /^program:/m.test(text) && /^points:/m.test(text);
}

/** Returns the words of the command that plays `recipe`, and marks the lines of what failed for the problem matcher. */
export function recipeWords(recipe: string, others: string[] = []): string[] {
  return ['launch', `--recipe=${recipe}`, '--ci', 'github', ...others];
}
