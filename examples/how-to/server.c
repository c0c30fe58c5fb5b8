// Answers a request every 5 ms and forgets to free what the first of ten of them needed: server
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct request {
  struct request *next;
  char text[8000];
};

static struct request *forgotten;

void handle_request(int number) {
  struct request *request = malloc(sizeof *request);
  memset(request->text, number, sizeof request->text);
  if (number % 10) {
    free(request);
  } else {
    request->next = forgotten;
    forgotten = request;
  }
}

int main(void) {
  for (int number = 0;; ++number) {
    handle_request(number);
    usleep(5000);
  }
}
