// Takes an order, has it paid, refunds it, and receives the notifications. Needs Go 1.19 or later, and nothing else.
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"
)

type Seller struct {
	UserID        int64  `json:"user_id"`
	ExternalPosID string `json:"external_pos_id"`
}

type Order struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

type Notification struct {
	Type string `json:"type"`
}

// call sends a request, and returns the response in the form T.
func call[T any](method, path string, body any) (value T) {
	var content []byte
	if body != nil {
		var err error
		content, err = json.Marshal(body)
		check(err)
	}
	request, err := http.NewRequest(method, os.Getenv("BASE_URL")+path, bytes.NewReader(content))
	check(err)
	key := make([]byte, 16)
	_, err = rand.Read(key)
	check(err)
	request.Header.Set("Authorization", "Bearer "+os.Getenv("ACCESS_TOKEN"))
	request.Header.Set("Content-Type", "application/json")
	// Each write has a key; a retry of the write sends the same key.
	request.Header.Set("X-Idempotency-Key", hex.EncodeToString(key))
	response, err := http.DefaultClient.Do(request)
	check(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(err)
	if response.StatusCode >= 300 {
		log.Fatalf("%s %s: %s %s", method, path, response.Status, text)
	}
	check(json.Unmarshal(text, &value))
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// isGenuine checks the signature of Standard Webhooks 1.0: an HMAC over the id, the time and the raw body.
func isGenuine(header http.Header, body []byte, secret string) bool {
	timestamp := header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || math.Abs(float64(time.Now().Unix()-seconds)) > 300 {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", header.Get("webhook-id"), timestamp, body)
	expected := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	for _, signature := range strings.Split(header.Get("webhook-signature"), " ") {
		if hmac.Equal(expected, []byte(signature)) {
			return true
		}
	}
	return false
}

func main() {
	var secret string
	received := make(chan string, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var notification Notification
		if err != nil || !isGenuine(r.Header, body, secret) || json.Unmarshal(body, &notification) != nil {
			w.WriteHeader(http.StatusUnauthorized)
			received <- "forged"
			return
		}
		w.WriteHeader(http.StatusAccepted)
		received <- notification.Type
	}))
	defer server.Close()

	// Everything below /_sandbox/ controls the sandbox: the platform itself does not have it.
	seller := call[[]Seller]("GET", "/_sandbox/tenants", nil)[0]
	webhooks := fmt.Sprintf("/_sandbox/tenants/%d/webhooks", seller.UserID)
	secret = call[map[string]any]("POST", webhooks, map[string]any{"url": server.URL})["secret"].(string)

	order := call[Order]("POST", "/v1/orders", map[string]any{
		"type":               "qr",
		"external_reference": "table-7",
		"total_amount":       "24.90",
		"config":             map[string]any{"qr": map[string]any{"external_pos_id": seller.ExternalPosID, "mode": "dynamic"}},
		"transactions":       map[string]any{"payments": []any{map[string]any{"amount": "24.90"}}},
	})
	call[map[string]any]("POST", "/_sandbox/orders/"+order.ID+"/pay", nil) // The buyer scans the code and pays.
	paid := call[Order]("GET", "/v1/orders/"+order.ID, nil)
	refunded := call[Order]("POST", "/v1/orders/"+order.ID+"/refund", nil)
	types := []string{<-received, <-received, <-received}
	sort.Strings(types)

	fmt.Println(paid.Status, refunded.Status, strings.Join(types, " "))
	if !reflect.DeepEqual(types, []string{"orders.created", "orders.paid", "orders.refunded"}) {
		os.Exit(1)
	}
}
